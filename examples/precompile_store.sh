#!/usr/bin/env bash
# Compile all schemas of a folder for a model, and put the indexes where its servers find them:
#   examples/precompile_store.sh MODEL schemas/ redis://redis:6379/0
#   DOTLLM_STORE=redis://redis:6379/0 dotllm serve MODEL
# Servers and this script need the same DOTLLM_STORE_SECRET, the same tokenizer and the same version of dotllm.
set -euo pipefail
model=$1 schemas=$2 store=$3
dotllm warmup
dotllm check "$schemas"                       # a refusal ends the script here
dotllm compile "$schemas" --tokenizer "$model" --store "$store"
