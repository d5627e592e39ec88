"""Writes tests/golden/tokenizer_files, a tokenizer with added tokens as Transformers 5.24 saves it (tokenizers 0.23.3).

Run it from the source root.
"""
from transformers import AddedToken, BertTokenizer

PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "boat", "##s", "\"", "\\", "é", "山", "\u0085", "(x)"]

vocab = {piece: i for i, piece in enumerate(PIECES)}
tokenizer = BertTokenizer(vocab=vocab, strip_accents=False, model_max_length=64)
tokenizer.add_tokens(["<go>", AddedToken("new boat", single_word=True, lstrip=True, rstrip=True, normalized=False)])
tokenizer.add_special_tokens({"extra_special_tokens": ["(x)", "<end>"]})
tokenizer.save_pretrained("tests/golden/tokenizer_files")
