#!/usr/bin/env bash
# What the simulated Tegra kernel adds to a call; the target is 10 µs in the median.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo run --release --quiet -p nvabi-sim --example tegra_latency
