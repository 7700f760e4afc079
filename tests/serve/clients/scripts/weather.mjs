// What the examples of all clients on Node ask for.
// begin
import { z } from "zod";

export const Weather = z.object({
  city: z.string(),
  celsius: z.int(),
  sky: z.enum(["sun", "cloud", "rain", "snow"]),
});
export const question = "Osaka is rainy today, 19 degrees. Reply in JSON.";
// end
