"""Writes the sample of SQuAD's formats in tests/golden/squad, and what must come of it.

The sample's text is squad/sample.txt: "# title", paragraphs, "? question | answer | another answer" and, of SQuAD 2.0
alone, "! question without an answer". Windows, n-best answers and scores of 2.0 are those of Transformers 4 (its
processors and metrics of SQuAD, which follow Google's run_squad.py and the official script); scores of 1.1 are computed
here. Run it from the source root; it needs the package transformers, without torch.
"""
import collections
import json
import re
import string
import sys

from transformers import BertTokenizer
from transformers.data.metrics import squad_metrics
from transformers.data.processors import squad

FOLDER = "tests/golden/squad"
CUTS = [(64, 16, 12), (384, 128, 64), (40, 20, 8)]  # max_seq_length, doc_stride, max_query_length
CHOICES = [(20, 30, 0.0), (3, 5, -1.5)]  # n_best_size, max_answer_length, null_score_diff_threshold
TEXTS = ["The quick, brown fox!", "a an the", "Éa the É", "naïve a café", "\u2013a\u2013the", "ΟΔΟΣ the ΑΣ Σ ΣΑ", "İSTANBUL",
         "a\u00a0the\u2003x\u0085y\u001cz", "the_thing a_b", "a1 a", "don't", "\u201cthe\u201d end", "½ a ²", "東京 the 東", "3,200",
         "U.S. Navy's", "", "  A  ", "the\u0301 a\u0301", "№ a ℵ", "ǅ the Ⅷ", "x\u200da the"]
DEV_EVERY = 3  # every third question is one of dev


def read_sample():
    """[(title, [(context, [(question, answers)])])]; answers None: impossible."""
    articles = []
    for line in open(f"{FOLDER}/sample.txt", encoding="utf-8"):
        line = line.rstrip("\n")
        if line.startswith("# "):
            articles.append((line[2:], []))
        elif line.startswith("? "):
            question, *answers = line[2:].split(" | ")
            articles[-1][1][-1][1].append((question, answers))
        elif line.startswith("! "):
            articles[-1][1][-1][1].append((line[2:], None))
        elif line:
            articles[-1][1].append((line.replace("280 m", "280\u202fm").replace("30 %", "30\u00a0%"), []))
    return articles


def place(context, text):
    """An answer and its place; blanks may be other white space in the context."""
    at = re.search(re.escape(text).replace(r"\ ", r"\s"), context)
    return {"answer_start": at.start(), "text": at.group()}


def write_json(name, document):
    with open(f"{FOLDER}/{name}", "w", encoding="utf-8", newline="\n") as f:
        json.dump(document, f, ensure_ascii=False, indent=1)
        f.write("\n")


def make_files(articles):
    for version in ("1.1", "2.0"):
        for split in ("train", "dev"):
            number, data = 0, []
            for title, paragraphs in articles:
                data.append({"title": title, "paragraphs": []})
                for context, questions in paragraphs:
                    qas = []
                    for question, answers in questions:
                        number += 1
                        if (number % DEV_EVERY == 0) != (split == "dev") or (answers is None and version == "1.1"):
                            continue
                        q = {"id": f"veldra-{number:03}", "question": question}
                        if answers is None:
                            q["plausible_answers"] = [place(context, context.split()[0])]
                        q["answers"] = [place(context, a) for a in (answers or [])[:1 if split == "train" else None]]
                        if version == "2.0":
                            q["is_impossible"] = answers is None
                        qas.append(q)
                    data[-1]["paragraphs"].append({"context": context, "qas": qas})
            write_json(f"{split}-v{version}.json", {"version": version, "data": data})


def logit(window, row, column):
    """The test makes the same numbers: multiples of 1/64 from −8 on."""
    return (((window * 1000003 + row * 7919 + column * 104729) * 2654435761) % 2**32 >> 22) / 64.0 - 8.0


def score_1_1(examples, answers):
    def normal(text):
        kept = "".join(c for c in text.lower() if c not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    def f1(a, b):
        both = sum((collections.Counter(a) & collections.Counter(b)).values())
        return 2 * both / len(a) * both / len(b) / (both / len(a) + both / len(b)) if both else 0.0

    exact = [max(normal(t["text"]) == normal(answers[e.qas_id]) for t in e.answers) for e in examples]
    close = [max(f1(normal(answers[e.qas_id]), normal(t["text"])) for t in e.answers) for e in examples]
    return {"exact_match": 100.0 * sum(exact) / len(exact), "f1": 100.0 * sum(close) / len(close)}


def windows_of(tokenizer, examples, cut, training):
    length, stride, query = cut
    made = squad.squad_convert_examples_to_features(
        examples, tokenizer, length, stride, query, training, padding_strategy="do_not_pad", threads=1, tqdm_enabled=False)
    return made


def checksum(numbers):
    """The test computes the same."""
    h = 0
    for x in numbers:
        h = (h * 1000003 + x + 1) % 2**64
    return f"{h:016x}"


def cairn_features(examples, features):
    """Per window: the question, the length, the rows of the answer, the checksum of the ids, and of row, word and most
    context of each piece of the paragraph."""
    out, number = [], {e.qas_id: i for i, e in enumerate(examples)}
    for f in features:
        words = [x for row in sorted(f.token_to_orig_map)
                 for x in (row, f.token_to_orig_map[row], int(f.token_is_max_context[row]))]
        out.append([number[f.qas_id], len(f.input_ids), f.start_position, f.end_position, checksum(f.input_ids),
                    checksum(words)])
    return out


def answers_of(tokenizer, examples, features, choice, version_2):
    n_best, longest, threshold = choice
    results = []
    for i, f in enumerate(features):
        rows = range(len(f.input_ids))
        results.append(squad.SquadResult(f.unique_id, [logit(i, r, 0) for r in rows], [logit(i, r, 1) for r in rows]))
    names = ["/tmp/squad_a.json", "/tmp/squad_n.json", "/tmp/squad_o.json" if version_2 else None]
    answers = squad_metrics.compute_predictions_logits(examples, features, results, n_best, longest, True, *names, False,
                                                       version_2, threshold, tokenizer)
    lists = json.load(open(names[1]))
    odds = json.load(open(names[2])) if version_2 else None
    if version_2:  # with odds the other figures are those of a threshold of 1
        best = squad_metrics.squad_evaluate(examples, answers, odds)
        figures = {**squad_metrics.squad_evaluate(examples, answers), **{k: v for k, v in best.items() if "best" in k}}
    else:
        figures = score_1_1(examples, answers)
    return {"answers": answers, "nbest": {k: [[c["text"], c["probability"], c["start_logit"], c["end_logit"]] for c in v]
                                          for k, v in lists.items()}, "odds": odds, "figures": figures}


def altered(number, text):
    """The answers of a reader who is sometimes right."""
    words = text.split()
    return [text, f"The {text}!", words[0], f"{text} and more", "", text.upper(), f"{words[-1]} {words[-1]}"][number % 7]


def altered_answers(examples, version_2):
    answers = {e.qas_id: altered(i, e.answers[0]["text"] if e.answers else "nothing at all")
               for i, e in enumerate(examples)}
    odds = {e.qas_id: logit(i, i, 0) for i, e in enumerate(examples)}
    if not version_2:
        return {"answers": answers, "figures": score_1_1(examples, answers)}
    best = squad_metrics.squad_evaluate(examples, answers, odds)
    figures = {**squad_metrics.squad_evaluate(examples, answers), **{k: v for k, v in best.items() if "best" in k}}
    return {"answers": answers, "odds": odds, "figures": figures}


def main():
    make_files(read_sample())
    tokenizer = BertTokenizer(f"{FOLDER}/vocab.txt", do_lower_case=True)
    # Google's removes every "##", also that of an answer's first piece.
    tokenizer.convert_tokens_to_string = lambda pieces: " ".join(pieces).replace(" ##", "").replace("##", "")
    cases = []
    for version_2, processor, name in ((False, squad.SquadV1Processor(), "v1.1"), (True, squad.SquadV2Processor(), "v2.0")):
        train = processor.get_train_examples(FOLDER, f"train-{name}.json")
        dev = processor.get_dev_examples(FOLDER, f"dev-{name}.json")
        for cut in CUTS:
            case = {"version_2": version_2, "cut": cut,
                    "train": cairn_features(train, windows_of(tokenizer, train, cut, True)),
                    "dev": cairn_features(dev, windows_of(tokenizer, dev, cut, False)), "choices": [],
                    "altered": altered_answers(dev, version_2)}
            for choice in CHOICES:
                features = windows_of(tokenizer, dev, cut, False)
                case["choices"].append({"choice": choice, **answers_of(tokenizer, dev, features, choice, version_2)})
            cases.append(case)
    with open(f"{FOLDER}/expected.json", "w", encoding="utf-8") as f:
        json.dump({"cases": cases, "normalised": [[t, squad_metrics.normalize_answer(t)] for t in TEXTS]}, f, ensure_ascii=False, indent=0, separators=(",", ":"))
        f.write("\n")
    print(sum(len(c["train"]) + len(c["dev"]) for c in cases), "windows", file=sys.stderr)


if __name__ == "__main__":
    main()
