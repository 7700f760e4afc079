# opencode: one turn through chats.
set -e
# begin
cat > opencode.json <<'END'
{"provider": {"dotllm": {
  "npm": "@ai-sdk/openai-compatible",
  "options": {"baseURL": "http://localhost:8000/v1"},
  "models": {"Qwen/Qwen3-8B": {"limit": {"context": 40960, "output": 4096}}}}}}
END
opencode run --model dotllm/Qwen/Qwen3-8B "Say hello."
# end
