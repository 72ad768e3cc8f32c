#!/usr/bin/env bash
# outlines-core 0.2.14: `minimum` and `maximum` of a JSON schema are dropped without a word; lengths are kept.
# Guess: constrained decoding with {"minimum": 1, "maximum": 5} yields numbers from 1 to 5, or the schema is refused.
# Seen: the regular expression accepts -700. xgrammar 0.2.8 enforces the same bounds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet outlines-core==0.2.14
"$folder/venv/bin/python" - <<'EOF'
import json
import re

from outlines_core.json_schema import build_regex_from_schema


def accepts(schema, text):
    return re.fullmatch(build_regex_from_schema(json.dumps(schema)), text) is not None


number = {"type": "integer", "minimum": 1, "maximum": 5}
text = {"type": "string", "minLength": 2, "maxLength": 3}
result = [accepts(number, "-700"), accepts(number, "3"), accepts(text, '"abcd"'), accepts(text, '"abc"')]
print("-700, 3, abcd, abc:", result)
assert result == [True, True, False, True]
EOF
