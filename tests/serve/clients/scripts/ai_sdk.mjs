// The AI SDK with its providers of OpenAI (chat and Responses), of compatible servers, and of Anthropic.
import assert from "node:assert/strict";

// begin
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText } from "ai";
import { Weather, question } from "./weather.mjs";

const provider = createOpenAICompatible({
  name: "dotllm",
  baseURL: "http://localhost:8000/v1",
  supportsStructuredOutputs: true, // else the schema is not sent
});
const { output } = await generateText({
  model: provider("Qwen/Qwen3-8B"),
  output: Output.object({ schema: Weather }),
  prompt: question,
});
console.log(output);
// end

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { streamText, tool } from "ai";

Weather.parse(output);
const openai = createOpenAI({ baseURL: "http://localhost:8000/v1", apiKey: "-" });
const anthropic = createAnthropic({ baseURL: "http://localhost:8000/v1", apiKey: "-" });
const models = [
  provider("Qwen/Qwen3-8B"),
  openai.chat("Qwen/Qwen3-8B"),
  openai.responses("Qwen/Qwen3-8B"),
  anthropic("Qwen/Qwen3-8B"),
];
for (const model of models) {
  const common = { model, prompt: question, maxOutputTokens: 300, maxRetries: 0 };
  const format = Output.object({ schema: Weather });
  Weather.parse((await generateText({ ...common, output: format })).output);

  const stream = streamText({ ...common, output: format, onError: ({ error }) => { throw error; } });
  let parts = 0;
  for await (const part of stream.partialOutputStream) parts += part !== undefined;
  assert(parts > 1);
  Weather.parse(await stream.output);

  const note = tool({ inputSchema: Weather, execute: async (weather) => Weather.parse(weather), strict: true });
  const tools = { note_weather: note };
  const called = await generateText({ ...common, tools, toolChoice: "required" });
  Weather.parse(called.toolResults[0].output);
}
