"""Golden values for GLUE's metrics: tests/golden/glue_metrics.txt, from scikit-learn and SciPy.

Use: python3 tests/golden/make_glue_metrics.py > tests/golden/glue_metrics.txt
Its first line names the versions. One block per case:
    labels NAME N            then N lines "predicted truth", then accuracy f1 matthews_correlation
    scores NAME N            then N lines "predicted truth", then pearson spearmanr
    classes NAME N K         then N lines "predicted truth" of K labels, then those figures of each label, the means
    several NAME N K         then N lines of K predictions and K truths, 0 or 1, then the same
Those figures are precision recall f1 rows in a line, of label 0 to K - 1; then of the macro and the weighted mean,
without rows.
Numbers are written with 17 digits; "nan" is undefined. Cases come from a small generator in this script, so that
any version of the libraries can reproduce the file.
"""
import warnings

import numpy
import scipy
import scipy.stats
import sklearn
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, precision_recall_fscore_support

warnings.simplefilter("ignore")
state = 12345


def draw():
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) / 2**31


def number(x):
    return repr(float(x))


def labels(name, predicted, truth):
    print("labels", name, len(truth))
    for p, t in zip(predicted, truth):
        print(p, t)
    print(number(accuracy_score(truth, predicted)), number(f1_score(truth, predicted, zero_division=0)),
          number(matthews_corrcoef(truth, predicted)))


def scores(name, predicted, truth):
    print("scores", name, len(truth))
    for p, t in zip(predicted, truth):
        print(number(p), number(t))
    pearson = scipy.stats.pearsonr(predicted, truth)[0]
    spearman = scipy.stats.spearmanr(predicted, truth)[0]
    print(number(pearson), number(spearman))


def labels_each(kind, name, predicted, truth, k):
    print(kind, name, len(truth), k)
    for p, t in zip(predicted, truth):
        print(*(p, t) if kind == "classes" else p + t)
    of_each = precision_recall_fscore_support(truth, predicted, labels=range(k), zero_division=0)
    for row in zip(*of_each):
        print(*map(number, row[:3]), row[3])
    for average in ("macro", "weighted"):
        print(*map(number, precision_recall_fscore_support(truth, predicted, average=average, zero_division=0)[:3]))


print("# scikit-learn", sklearn.__version__, "scipy", scipy.__version__, "numpy", numpy.__version__)

for name, n, right, ones in [("even", 60, 0.8, 0.5), ("rare", 60, 0.9, 0.1), ("worse_than_chance", 40, 0.3, 0.5)]:
    truth = [int(draw() < ones) for _ in range(n)]
    labels(name, [t if draw() < right else 1 - t for t in truth], truth)
labels("all_right", [0, 1, 1, 0], [0, 1, 1, 0])
labels("all_wrong", [1, 0, 0, 1], [0, 1, 1, 0])
labels("never_positive", [0, 0, 0, 0], [0, 1, 1, 0])
labels("always_positive", [1, 1, 1, 1], [0, 1, 1, 0])
labels("no_positive_at_all", [0, 0, 0], [0, 0, 0])
labels("only_positive", [1, 1, 1], [1, 1, 1])
labels("one", [1], [0])

truth = [round(5 * draw() * 4) / 4 for _ in range(60)]
scores("ties_in_truth", [t + 2 * draw() - 1 for t in truth], truth)
scores("ties_in_both", [round(t + 2 * draw() - 1) for t in truth], truth)
scores("float32", [float(numpy.float32(t * draw())) for t in truth], truth)
scores("far_from_zero", [1e6 + t + draw() for t in truth], [1e6 + t for t in truth])
scores("large_and_small", [t * 10 ** (12 * draw() - 6) for t in truth], truth)
scores("negative", [-t + draw() for t in truth], truth)
scores("equal", truth, truth)
scores("opposite", [5 - t for t in truth], truth)
scores("two", [1.0, 2.0], [3.0, 7.0])
scores("constant_prediction", [2.5] * 5, [1.0, 2.0, 3.0, 4.0, 5.0])
scores("constant_truth", [1.0, 2.0, 3.0], [4.0, 4.0, 4.0])
scores("constant_but_one", [2.5, 2.5, 2.5, 2.5, 2.75], [1.0, 2.0, 3.0, 4.0, 5.0])

def draw_classes(n, k, right):
    truth = [int(k * draw() ** 2) for _ in range(n)]
    return [t if draw() < right else int(k * draw()) for t in truth], truth


labels_each("classes", "three", *draw_classes(60, 3, 0.6), 3)
labels_each("classes", "many_rare", *draw_classes(50, 20, 0.5), 20)
labels_each("classes", "two", *draw_classes(40, 2, 0.7), 2)
labels_each("classes", "absent_and_never_predicted", [0, 0, 2, 2], [0, 1, 2, 2], 5)
truth = [[int(draw() < 0.4) for _ in range(4)] for _ in range(40)]
labels_each("several", "four", [[int(draw() < 0.8) * t for t in row] for row in truth], truth, 4)
labels_each("several", "one_absent", [[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 0]], 3)
labels_each("several", "nothing", [[0, 0], [0, 0]], [[0, 0], [0, 0]], 2)
