#!/usr/bin/env python3
"""Prints the keys of config.json that this version of Transformers knows for BERT or DistilBERT and
tests/state/config_keys.tsv lacks, and those of the files of sentence-transformers.

Run by hand with Transformers 5.24 and 4.57 and sentence-transformers 6.2; both print nothing.
"""
import inspect
import pathlib
import re

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.sentence_transformer.modules import pooling
from transformers import BertConfig, DistilBertConfig, GenerationConfig, PretrainedConfig

table = pathlib.Path(__file__).parents[1] / "state" / "config_keys.tsv"
rows = [line.removeprefix("distilbert/").split("\t")[:2] for line in table.read_text().splitlines()[2:]]
known = set()
for kind in (BertConfig, DistilBertConfig):
    known |= set(kind().to_dict()) | set(inspect.signature(kind.__init__).parameters)
made = getattr(PretrainedConfig, "__post_init__", PretrainedConfig.__init__)
known |= set(re.findall(r"kwargs\.(?:pop|get)\(\s*\"(\w+)\"", inspect.getsource(made)))
if hasattr(GenerationConfig, "_get_default_generation_params"):
    known |= set(GenerationConfig._get_default_generation_params())
whole = "".join(inspect.getsource(c._parse_model_config) for c in SentenceTransformer.__mro__[:2])
files = {
    "config.json": known,
    "1_Pooling/config.json": set(inspect.signature(pooling.Pooling.__init__).parameters)
    | set(pooling._LEGACY_POOLING_MODE_KWARGS) | set(pooling.Pooling.config_key_renames),
    "2_Normalize/config.json": set(Normalize.config_keys),
    "sentence_bert_config.json": set(inspect.signature(Transformer.__init__).parameters) - {"model_name_or_path", "backend"},
    "config_sentence_transformers.json": set(re.findall(r"model_config\.get\(\s*\"(\w+)\"", whole)),
}
for file, keys in files.items():
    lacking = keys - {key for name, key in rows if name == file} - {"self", "args", "kwargs"}
    print(*(f"{file}: {key}" for key in sorted(lacking)), sep="\n", end="\n" if lacking else "")
