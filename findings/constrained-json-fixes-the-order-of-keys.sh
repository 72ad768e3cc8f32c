#!/usr/bin/env bash
# xgrammar 0.2.8 and outlines-core 0.2.14: constrained JSON must have its keys in the order of `properties`.
# Guess: every document that is valid under the schema can be generated.
# Seen: with properties b, a only {"b": 1, "a": 2} is accepted by either; `required` has no influence on the order. Schemas
# that were sorted (by json.dumps(sort_keys=True), say) ask the model to write, for example, its answer before its reasoning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet xgrammar==0.2.8 outlines-core==0.2.14
"$folder/venv/bin/python" - <<'EOF'
import json
import re

import xgrammar
from outlines_core.json_schema import build_regex_from_schema

vocabulary = [bytes([byte]) for byte in range(256)] + [b"<end>"]
END = 256
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[END]))


def accepts(schema, text):
    matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
    return matcher.accept_string(text) and matcher.accept_token(END)


number = {"type": "integer"}
schema = {"type": "object", "properties": {"b": number, "a": number}, "required": ["a", "b"]}
texts = ('{"b": 1, "a": 2}', '{"a": 2, "b": 1}')
by_xgrammar = [accepts(schema, text) for text in texts]
pattern = build_regex_from_schema(json.dumps(schema))
by_outlines = [re.fullmatch(pattern, text) is not None for text in texts]
print("b before a, a before b:", by_xgrammar, by_outlines)
assert by_xgrammar == by_outlines == [True, False]
EOF
