"""Reads a workload directory as the `analyze` of AMD's versions does, by the facts of their files
(shared/research/rocprof-compute.md section 2.4). Prints of each directory what was chosen, and the panels
of it, as JSON."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import yaml

NUMBER = re.compile(r"^\d{1,2}(?:\.\d{1,2}){0,2}$")
SYSTEM = "cu_per_gpu simd_per_cu se_per_gpu wave_size max_waves_per_cu max_sclk max_mclk total_l2_chan num_xcd".split()


def panel(block):
    """A number of a panel, a table or a metric is a text, which every version splits at its dots."""
    parts = [int(part) for part in block.split(".")]
    assert 0 < len(parts) < 4, block
    return parts[0]


def before_3_4(blocks):
    if isinstance(blocks, dict):
        blocks = [name for name, kind in blocks.items() if kind == "metric_id"]
    return {panel(block) for block in blocks}


def since_3_4(blocks):
    assert isinstance(blocks, list)
    for block in blocks:
        # Anything else is the alias of a block, which AMD's version may not know.
        assert NUMBER.match(str(block)), block
    return {panel(str(block)) for block in blocks}


def read(directory):
    config = yaml.safe_load((directory / "profiling_config.yaml").read_text())
    blocks = config["filter_blocks"]
    old, new = before_3_4(blocks), since_3_4(blocks)
    assert old == new, (old, new)
    # What `analyze` decides by.
    assert config["format_rocprof_output"] in ("csv", "rocpd")
    assert config.get("iteration_multiplexing") is None
    assert not config.get("spatial_multiplexing")
    assert not config.get("membw_analysis", False)
    for key, value in config.items():
        for word in value if isinstance(value, list) else []:
            assert isinstance(word, str), (key, value)
    system = pd.read_csv(directory / "sysinfo.csv")
    assert len(system) == 1
    assert system.iloc[0]["gpu_arch"] == "gfx942"
    assert set(SYSTEM) <= set(system.columns)
    return {"blocks": blocks, "panels": sorted(new), "rows": len(pd.read_csv(directory / "pmc_perf.csv"))}


json.dump([read(Path(directory)) for directory in sys.argv[1:]], sys.stdout)
