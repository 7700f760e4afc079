// A zod schema through OpenAI's client for TypeScript and JavaScript (npm install openai zod):
//
//     OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=- node zod_client.mjs

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const Weather = z.strictObject({
  city: z.string().max(40),
  celsius: z.int().min(-60).max(60),
  sky: z.enum(["sun", "cloud", "rain", "snow"]),
});

const client = new OpenAI();
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Osaka is rainy today, 19 degrees. Reply in JSON." }];

const answer = await client.chat.completions.parse({
  model,
  messages,
  response_format: zodResponseFormat(Weather, "weather"),
});
console.log("format:", answer.choices[0].finish_reason, answer.choices[0].message.parsed);

const called = await client.chat.completions.parse({
  model,
  messages,
  tools: [zodFunction({ name: "report", parameters: Weather })],
  tool_choice: "required",
});
for (const call of called.choices[0].message.tool_calls) {
  console.log("tool:", call.function.name, call.function.parsed_arguments);
}
