// openai-node with zod: formats and tools in chat and Responses, streams, the tool runner.
import assert from "node:assert/strict";

// begin
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { Weather, question } from "./weather.mjs";

const client = new OpenAI({ baseURL: "http://localhost:8000/v1", apiKey: "-" });
const answer = await client.chat.completions.parse({
  model: "Qwen/Qwen3-8B",
  response_format: zodResponseFormat(Weather, "weather"),
  messages: [{ role: "user", content: question }],
});
console.log(answer.choices[0].message.parsed);
// end

import { zodFunction, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";

const model = "Qwen/Qwen3-8B";
const messages = [{ role: "user", content: question }];
Weather.parse(answer.choices[0].message.parsed);
const tools = [zodFunction({ name: "note_weather", parameters: Weather })];
const called = await client.chat.completions.parse({ model, messages, tools, tool_choice: "required" });
Weather.parse(called.choices[0].message.tool_calls[0].function.parsed_arguments);

const response_format = zodResponseFormat(Weather, "weather");
const stream = client.chat.completions.stream({ model, messages, response_format });
Weather.parse((await stream.finalChatCompletion()).choices[0].message.parsed);

const text = { format: zodTextFormat(Weather, "weather") };
Weather.parse((await client.responses.parse({ model, input: question, text })).output_parsed);
const said = client.responses.stream({ model, input: question, text });
Weather.parse((await said.finalResponse()).output_parsed);
const functions = [zodResponsesFunction({ name: "note_weather", parameters: Weather })];
const response = await client.responses.parse({ model, input: question, tools: functions, tool_choice: "required" });
Weather.parse(response.output.find((item) => item.type === "function_call").parsed_arguments);

const noted = [];
const noting = zodFunction({
  name: "note_weather",
  parameters: Weather,
  function: (weather) => {
    noted.push(Weather.parse(weather));
    return "noted";
  },
});
const options = { maxChatCompletions: 1 };
const one = { type: "function", function: { name: "note_weather" } };
const runner = client.chat.completions.runTools({ model, messages, tools: [noting], tool_choice: one }, options);
await runner.done();
assert.equal(noted.length, 1);
