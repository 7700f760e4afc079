# Claude Code: one turn through Messages.
set -e
# begin
export ANTHROPIC_BASE_URL=http://localhost:8000 ANTHROPIC_AUTH_TOKEN=-
export ANTHROPIC_MODEL=Qwen/Qwen3-8B ANTHROPIC_SMALL_FAST_MODEL=Qwen/Qwen3-8B
claude --print "Say hello."
# end
