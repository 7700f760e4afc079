# Codex: one turn through Responses, whose last answer has a format.
set -e
# begin
cat > weather.json <<'END'
{"type": "object", "properties": {"city": {"type": "string"}, "celsius": {"type": "integer"}},
 "required": ["city", "celsius"], "additionalProperties": false}
END
codex exec --skip-git-repo-check --model Qwen/Qwen3-8B -c model_provider=dotllm \
  -c 'model_providers.dotllm={name="dotllm", base_url="http://localhost:8000/v1", wire_api="responses"}' \
  --output-schema weather.json --output-last-message answer.json "Osaka is rainy today, 19 degrees."
# end
node -e 'if (typeof JSON.parse(fs.readFileSync("answer.json")).celsius !== "number") process.exit(1)'
