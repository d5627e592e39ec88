#!/usr/bin/env python3
"""Prints the keys of config.json that this version of Transformers knows for BERT and tests/state/config_keys.tsv lacks.

Run by hand with Transformers 5.24 and 4.57; both print nothing.
"""
import inspect
import pathlib
import re

from transformers import BertConfig, GenerationConfig, PretrainedConfig

table = pathlib.Path(__file__).parents[1] / "state" / "config_keys.tsv"
listed = {line.split("\t")[1] for line in table.read_text().splitlines()[2:]}
known = set(BertConfig().to_dict()) | set(inspect.signature(BertConfig.__init__).parameters)
made = getattr(PretrainedConfig, "__post_init__", PretrainedConfig.__init__)
known |= set(re.findall(r"kwargs\.(?:pop|get)\(\s*\"(\w+)\"", inspect.getsource(made)))
if hasattr(GenerationConfig, "_get_default_generation_params"):
    known |= set(GenerationConfig._get_default_generation_params())
print(*sorted(known - listed - {"self", "args", "kwargs"}), sep="\n")
