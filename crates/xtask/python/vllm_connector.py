"""vLLM's own tests of its NixlConnector, unchanged, on a machine without GPU and without a model's weights.

The first argument is the folder of vLLM's sources. The tests want an installed vLLM for CPUs, and configurations of two models;
here the sources stand in for the one, and files that are written here for the others. Most of these tests use a stand-in of
vLLM's for NIXL's agent; those that start an engine with weights are left out.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "0.33.0"
UNIT = "tests/v1/kv_connector/unit"
TESTS = ["test_nixl_connector.py", "test_nixl_desc_geometry.py"]
#: They load weights.
WITHOUT = "not abort_timeout"

#: Of the models that the tests name: layers, hidden size, heads, size of embeddings.
MODELS = {"facebook/opt-125m": (12, 768, 12, 768), "facebook/opt-350m": (24, 1024, 16, 512)}


def write_models(folder):
    for name, (layers, hidden, heads, embedded) in MODELS.items():
        config = {
            "model_type": "opt",
            "architectures": ["OPTForCausalLM"],
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "ffn_dim": 4 * hidden,
            "num_attention_heads": heads,
            "word_embed_proj_dim": embedded,
            "do_layer_norm_before": embedded == hidden,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
            "dtype": "float16",
        }
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))


def main():
    sources = Path(sys.argv[1]).resolve()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["-r", sources / "requirements/common.txt", "ray", "tblib", "pytest-asyncio"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(sources / "tests", folder / "tests")
        write_models(folder)
        # By the name of its version vLLM knows which platform it was built for.
        named = folder / "site" / f"vllm-{VERSION}+cpu.dist-info"
        named.mkdir(parents=True)
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
        path = os.pathsep.join(map(str, (folder / "site", sources, folder)))
        env = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:warnings"]
        tests += ["--timeout", "300", "--tb", "short", "-k", WITHOUT, *(f"{UNIT}/{name}" for name in TESTS)]
        sys.exit(subprocess.run(tests, cwd=folder, env=env).returncode)


if __name__ == "__main__":
    main()
