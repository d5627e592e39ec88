"""Golden values for the metrics of sentence embeddings: tests/golden/embed_metrics.txt, from scikit-learn and SciPy.

Use: python3 tests/golden/make_embed_metrics.py > tests/golden/embed_metrics.txt
Its first line names the versions. One block per case, with N rows of two vectors of H numbers:
    scored N H    then N lines of both vectors and the score, then pearson spearmanr of the cosines
    pairs N H     then N lines of both vectors, then recall_at_1 recall_at_5 recall_at_10 mrr_at_10
"""
import numpy
import scipy
import scipy.stats
import sklearn
from sklearn.metrics import top_k_accuracy_score

state = 12345


def draw():
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) / 2**31


def rows(n, h, near):
    first = [[round(draw() - 0.5, 3) for _ in range(h)] for _ in range(n)]
    second = [[round(near * x + draw() - 0.5, 3) for x in row] for row in first]
    return numpy.array(first), numpy.array(second)


def unit(x):
    return x / numpy.linalg.norm(x, axis=1, keepdims=True)


def show(values):
    print(*("%.4g" % x for x in values))


def scored(n, h):
    a, b = rows(n, h, 0.5)
    cosine = (unit(a) * unit(b)).sum(axis=1)
    score = numpy.round(3 * cosine + numpy.array([draw() for _ in range(n)])).astype(int)
    print("scored", n, h)
    for i in range(n):
        show([*a[i], *b[i], score[i]])
    print(repr(float(scipy.stats.pearsonr(cosine, score)[0])), repr(float(scipy.stats.spearmanr(cosine, score)[0])))


def pairs(n, h):
    a, b = rows(n, h, 0.7)
    table = unit(a) @ unit(b).T
    rank = numpy.array([scipy.stats.rankdata(-table[i], method="max")[i] for i in range(n)])
    print("pairs", n, h)
    for i in range(n):
        show([*a[i], *b[i]])
    print(*(repr(float(top_k_accuracy_score(range(n), table, k=k))) for k in (1, 5, 10)),
          repr(float(numpy.where(rank <= 10, 1 / rank, 0).mean())))


print("# scikit-learn", sklearn.__version__, "scipy", scipy.__version__, "numpy", numpy.__version__)
scored(40, 5)
pairs(70, 6)
pairs(7, 3)
