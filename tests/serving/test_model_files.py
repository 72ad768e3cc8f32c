"""A model config from a hub model's id, with a real HTTP server in place of the hub, or from a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig, Roles
from serving.model_configs import load_model_config
from serving.model_files import check_files, describe_model
from serving.tokens.transcript import Transcript
from serving.usage import Prices
from serving.weights import adapter_arguments
from speedrunner.runs.identity import model_files
from tests.bundled_models import bundled_folder
from tests.golden_tables import Golden, refusals
from tests.hub_server import COMMIT, MODEL, TEXTS, WEIGHTS, ServeHub
from tests.lora_adapters import write_adapter
from tests.scripted_runs import in_process
from tests.tool_samples import TOOLS

pytestmark = pytest.mark.process

CALL = "{% for c in m.tool_calls or [] %}CALL{% endfor %}"
TURN = "{% for m in messages %}{{ m.role }}: {{ m.content }}" + CALL + "\n{% endfor %}"


def files(call: str, opening: str = "", **config: object) -> Mapping[str, bytes]:
    """Return the bundled model's files with another chat template and other values in `config.json`.

    Args:
        call: how the template writes a call.
        opening: the text that opens the model's turn.
    """
    template = TURN.replace("CALL", call) + "{% if add_generation_prompt %}model: " + opening + "{% endif %}"
    own = json.loads(TEXTS["config.json"]) | config
    return {**TEXTS, "chat_template.jinja": template.encode(), "config.json": json.dumps(own).encode()}


XML = "<tool_call><function={{ c.function.name }}></function></tool_call>"
JSON = '<tool_call>{"name": "{{ c.function.name }}"}</tool_call>'
LLAMA = '{"name": "{{ c.function.name }}", "parameters": {}}'


def described(contents: Mapping[str, bytes], folder: Path, serve_hub: ServeHub) -> ModelConfig:
    """Return the model config that is written for a model with these files."""
    serve_hub(contents)
    (file := folder / "mine.yaml").write_text(describe_model(MODEL, "mine"))
    return load_model_config(str(file))


def test_an_id_is_enough(tmp_path: Path, serve_hub: ServeHub) -> None:
    found = described(TEXTS, tmp_path, serve_hub)
    assert (found.name, found.id, found.revision) == ("mine", MODEL, COMMIT)
    assert (found.context, found.tool_format, found.thinking) == (16384, "qwen3_json", "generated")
    assert (found.gpus, found.cache, found.prices) == (1, "attention", Prices(0, 0, 0))
    actor, inducer = found.role("actor"), found.role("inducer")
    assert (actor.thinking_tokens, actor.string_tokens) == (256, 1024)
    assert (inducer.thinking_tokens, inducer.string_tokens) == (2048, 4096)
    assert found.server.flags["enable-prefix-caching"] is True


@pytest.mark.parametrize(
    ("call", "opening", "tool_format", "thinking"),
    [
        (XML, "<think>\n", "qwen3_xml", "prompted"),
        (JSON, "", "qwen3_json", "none"),
        (JSON, "{{ '' if enable_thinking else '<think></think>' }}", "qwen3_json", "generated"),
        (LLAMA, "", "llama3_json", "none"),
        ("call {{ c.function.name }}()", "", "qwen3_json", "none"),
    ],
)
def test_the_chat_template_shows_tool_calls_and_thinking(
    call: str, opening: str, tool_format: str, thinking: str, tmp_path: Path, serve_hub: ServeHub
) -> None:
    found = described(files(call, opening), tmp_path, serve_hub)
    assert (found.tool_format, found.thinking, found.tools_in) == (tool_format, thinking, "system")
    assert found.role("actor").thinking_tokens == 256  # without a thinking region, of plain text


def test_a_folder_is_read_as_it_is_and_served_on_the_cpu_if_there_is_no_gpu(tmp_path: Path) -> None:
    source = tmp_path / "Own_Model"
    shutil.copytree(bundled_folder("tiny-random"), source)
    done = in_process("init", "model", str(source), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = load_model_config(str(tmp_path / "own_model.yaml"))
    assert (found.path, found.context, found.tools_in) == (str(source), 8192, "template")
    assert (found.tool_format, found.thinking, found.dtype) == ("qwen3_json", "generated", "float32")
    assert (found.gpus, found.server.env["OMP_NUM_THREADS"]) == (0, 1)
    next(source.glob("*.safetensors")).unlink()
    done = in_process("init", "model", str(source), str(tmp_path))
    assert "Own_Model lacks *.safetensors" in done.stderr


def test_an_adapter_is_served_with_its_base(tmp_path: Path) -> None:
    base = Path(shutil.copytree(bundled_folder("tiny"), tmp_path / "base"))
    adapter = write_adapter(tmp_path / "mine", base)
    done = in_process("init", "model", str(adapter), str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    written = load_model_config(str(tmp_path / "mine.yaml"))
    assert (written.path, written.lora) == (str(base), str(adapter))
    assert adapter_arguments(written) == [
        *("--served-model-name", "mine.base", "--enable-lora", "--max-lora-rank", "8", "--lora-modules"),
        json.dumps({"name": "mine", "path": str(adapter)}),
    ]
    assert set(model_files(written, print)) > {"lora/adapter_model.safetensors", "lora/adapter_config.json"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"base_model_name_or_path": "gone"}, "is a LoRA adapter of 'gone', which is neither a folder here"),
        ({"r": 1000}, "r must be 1 to 512 (got 1000)"),
        (None, "lacks adapter_model.safetensors"),
    ],
)
def test_an_adapter_that_cannot_be_served_is_named(
    change: dict[str, object] | None, problem: str, tmp_path: Path
) -> None:
    base = Path(bundled_folder("tiny"))
    adapter = write_adapter(tmp_path / "mine", base)
    if change is None:
        (adapter / "adapter_model.safetensors").unlink()
    else:
        file = adapter / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | change))

    def serve() -> None:
        (tmp_path / "mine.yaml").write_text(describe_model(adapter, "mine"))
        adapter_arguments(load_model_config(str(tmp_path / "mine.yaml")))

    with pytest.raises(InvalidModelConfig) as error:
        serve()
    assert problem in str(error.value)


def test_init_writes_the_file_and_downloads_no_weights(tmp_path: Path, serve_hub: ServeHub) -> None:
    server = serve_hub({**TEXTS, **WEIGHTS})
    done = in_process("init", "model", MODEL, str(tmp_path / "mine"))
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (tmp_path / "mine").iterdir()) == ["tiny.yaml"]
    assert load_model_config(str(tmp_path / "mine" / "tiny.yaml")).id == MODEL
    assert "speedrunner prepare model=tiny.yaml" in done.stdout
    assert "model.safetensors" not in server.fetched


PLAIN = """\
{% if reasoning_effort is defined %}Think {{ reasoning_effort }}.{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template that knows no tools and no thoughts."""

TOOLS_SHOWN = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + PLAIN
CALLS_SHOWN = "<tool_call>\n{{ c.function | tojson }}\n</tool_call>"
OWN_WAY = {
    "other turns": TOOLS_SHOWN.replace("<|im_start|>", "<|sor|>").replace("im_end", "endoftext"),
    "other calls": TOOLS_SHOWN,
    "other replies": TOOLS_SHOWN.replace(
        "{{ m.content }}", "{{ m.content }}" + CALL.replace("CALL", CALLS_SHOWN)
    ),
    "tools before the last message": "{% for m in messages %}{% if m.role == 'user' %}"
    "{{ tools if loop.last }}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}<|im_end|>{% endif %}"
    "{% endfor %}",
}
"""Templates that show tools, and write calls or replies unlike each tool format."""

THINKS: dict[str, Any] = {"thinking_tokens": 8}
UNFIT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a format whose end of turn the tokenizer lacks": ({"tool_format": "llama3_json"}, {}, ""),
    "a format that the template does not write": ({"tool_format": "qwen3_xml"}, {}, ""),
    "more context than the model has": ({"context": 10_000_000}, {}, ""),
    "thinking that the template opens otherwise": ({"thinking": "prompted"}, THINKS, ""),
    "thinking of a model without": ({"thinking": "generated"}, THINKS, PLAIN),
    "options that the template does not use": ({}, {"template_options": {"effort": "low", "x": 1}}, ""),
    "the same on the chat API": ({"api": "chat"}, {"template_options": {"effort": "low", "x": 1}}, ""),
    "options of a text or a loop": ({}, {"template_options": {"Think": 1, "m": 1}}, PLAIN),
    "a template that refuses": ({}, {}, "{{ raise_exception('no\nsystem') }}"),
    "a template that cuts": ({"thinking": "none"}, {}, PLAIN.replace("m.content", "m.content[:9000]")),
    "a template that escapes": ({"thinking": "none"}, {}, PLAIN.replace("m.content", "m.content | e")),
    **{case: ({"thinking": "none"}, {}, template) for case, template in OWN_WAY.items()},
}
"""Changes of a model config and of its roles, and a chat template."""


def check(
    bare: ModelConfig, folder: Path, changes: dict[str, Any], role: dict[str, Any], template: str
) -> ModelConfig:
    """Check the random model's config with changes against its files in a new folder, and return it."""
    shutil.copytree(str(bare.path), folder)
    if template:
        (folder / "chat_template.jinja").write_text(template)
    roles = msgspec.structs.replace(bare.roles.actor, **role)
    changed = msgspec.structs.replace(bare, path=str(folder), roles=Roles(roles, bare.roles.actor), **changes)
    check_files(changed, str(folder), starts=True)
    return changed


def test_a_model_config_that_does_not_fit_its_files_is_refused(
    bare: ModelConfig, tmp_path: Path, golden: Golden
) -> None:
    tries = [(case, partial(check, bare, tmp_path / case, *given)) for case, given in UNFIT.items()]
    golden("unfit_model_configs.txt", refusals(tries, InvalidModelConfig))


@pytest.mark.parametrize("name", OWN_WAY)
def test_tools_go_into_the_system_message_if_the_template_has_its_own_way(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(bundled_folder("tiny-random"), tmp_path / "own")
    (folder / "chat_template.jinja").write_text(OWN_WAY[name])
    done = in_process("init", "model", str(folder), str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert load_model_config(str(tmp_path / "own.yaml")).tools_in == "system"


BROKEN = {
    "a template that raises": ("chat_template.jinja", "{{ raise_exception('I refuse') }}"),
    "a template with a syntax error": ("chat_template.jinja", "{{ messages }"),
    "roles as plain text": ("chat_template.jinja", TURN),
    "a tokenizer without a model": ("tokenizer.json", '{"version": "1.0"}'),
}
"""A file of a folder that no model config fits."""


def test_init_says_in_one_line_what_does_not_fit(tmp_path: Path, golden: Golden) -> None:
    lines = []
    for number, (case, (name, text)) in enumerate(BROKEN.items()):
        folder = shutil.copytree(bundled_folder("tiny-random"), tmp_path / f"model_{number}")
        (folder / name).write_text(text)
        done = in_process("init", "model", str(folder), str(tmp_path))
        lines += [case, f"    {done.returncode} {done.stderr.replace(str(tmp_path), 'DIR').strip()}"]
    golden("init_of_unfit_models.txt", "\n".join(lines) + "\n")


def test_values_that_a_model_config_cannot_have_are_left_out(tmp_path: Path) -> None:
    folder = shutil.copytree(bundled_folder("tiny-random"), tmp_path / "odd")
    sampling = {"temperature": "hot", "top_k": 0, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1}
    odd = {"generation_config.json": sampling, "config.json": {"text_config": None, "layer_types": None}}
    for name, values in odd.items():
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | values))
    text = describe_model(folder, "odd")
    (tmp_path / "odd.yaml").write_text(text)
    actor = load_model_config(str(tmp_path / "odd.yaml")).roles.actor
    assert (actor.temperature, actor.top_k, actor.top_p) == (None, None, 0.9)


def test_options_of_the_chat_template_are_in_the_prompts_of_their_role(
    bare: ModelConfig, tmp_path: Path
) -> None:
    options = {"template_options": {"reasoning_effort": "low"}}
    model_config = check(bare, tmp_path / "model", {"thinking": "none"}, options, PLAIN)
    tokenizer = check_files(model_config, str(model_config.path), starts=False)
    said = [{"role": "user", "content": "Go."}]
    assert tokenizer is not None
    for role, begins in (("actor", True), ("critic", False)):
        text = Transcript(model_config, role, tokenizer, said, [*TOOLS.values()]).text
        assert text.startswith("Think low.") == begins
