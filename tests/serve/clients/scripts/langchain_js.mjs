// LangChain for JavaScript: structured output in both methods, a bound tool, a stream.
import assert from "node:assert/strict";

// begin
import { ChatOpenAI } from "@langchain/openai";
import { Weather, question } from "./weather.mjs";

const chat = new ChatOpenAI({
  model: "Qwen/Qwen3-8B",
  apiKey: "-",
  configuration: { baseURL: "http://localhost:8000/v1" },
});
const format = { name: "weather", method: "jsonSchema" };
console.log(await chat.withStructuredOutput(Weather, format).invoke(question));
// end

import { tool } from "@langchain/core/tools";

for (const method of ["jsonSchema", "functionCalling"]) {
  Weather.parse(await chat.withStructuredOutput(Weather, { name: "weather", method }).invoke(question));
}
let last;
for await (const part of await chat.withStructuredOutput(Weather, format).stream(question)) last = part;
Weather.parse(last);

const note = tool(() => "noted", { name: "note_weather", description: "Note the weather.", schema: Weather });
const answer = await chat.bindTools([note], { tool_choice: "required", strict: true }).invoke(question);
Weather.parse(answer.tool_calls[0].args);
assert.equal(answer.tool_calls[0].name, "note_weather");
