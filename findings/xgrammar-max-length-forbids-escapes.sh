#!/usr/bin/env bash
# xgrammar 0.2.8: a JSON string with `maxLength` may hold no escape, so no quote, line break or backslash.
# Guess: maxLength only bounds the number of characters.
# Seen: the value "a\nb" (escaped, as JSON writes it) is accepted without maxLength and refused with maxLength 24. A tool
# argument that is code or a quotation cannot be written then.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet xgrammar==0.2.8
"$folder/venv/bin/python" - <<'EOF'
import json

import xgrammar

vocabulary = [bytes([byte]) for byte in range(256)] + [b"<end>"]
END = 256
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[END]))


def accepts(schema, text):
    matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
    return matcher.accept_string(text) and matcher.accept_token(END)


values = [json.dumps(value) for value in ("ab", "a\nb", 'say "yes"', "a\\b")]
free = [accepts({"type": "string"}, value) for value in values]
bounded = [accepts({"type": "string", "maxLength": 24}, value) for value in values]
print("without maxLength:", free, "with:", bounded)
assert free == [True] * 4
assert bounded == [True, False, False, False]
EOF
