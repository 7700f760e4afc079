// Types of zod as people write them: their JSON Schemas (`node zod_types.mjs schemas`), and what zod's `parse` says of
// documents (`node zod_types.mjs judge < lines of {"version", "name", "text"}`, an answer on each line).
//
// zod 4 writes schemas itself (z.toJSONSchema); for zod 3, zod-to-json-schema does. A type that only one version has is
// listed for it alone.
import { createInterface } from "node:readline";
import * as z4 from "zod";
import * as z3 from "zod/v3";
import { zodToJsonSchema } from "zod-to-json-schema";

function both(z, four) {
  const address = z.object({ street: z.string().min(1), zip: z.string().regex(/^\d{5}(?:-\d{4})?$/), country: z.string().length(2) });
  const cat = z.object({ kind: z.literal("cat"), lives: z.number().int().min(0).max(9) });
  const dog = z.object({ kind: z.literal("dog"), good: z.boolean().default(true) });
  const node = z.object({ value: z.number().int(), children: z.lazy(() => z.array(node)).optional() });
  const json = z.lazy(() => z.union([z.string(), z.number(), z.boolean(), z.null(), z.array(json), z.record(z.string(), json)]));
  const expression = z.lazy(() => z.union([z.number(), z.object({ op: z.enum(["+", "-"]), left: expression, right: expression })]));
  return {
    string: z.string(),
    number: z.number(),
    boolean: z.boolean(),
    nothing: z.null(),
    any: z.any(),
    unknown: z.unknown(),
    short: z.string().min(2).max(4),
    exact: z.string().length(3),
    nonempty: z.string().nonempty(),
    starts: z.string().startsWith("ab"),
    ends: z.string().endsWith("z."),
    includes: z.string().includes("mid(dle"),
    starts_and_ends: z.string().startsWith("<").endsWith(">").max(20),
    pattern: z.string().regex(/^[A-Z]{2}-\d+$/),
    unanchored: z.string().regex(/\d{3}/),
    without_case: z.string().regex(/^yes|no$/i),
    two_patterns: z.string().regex(/^[a-z]/).regex(/[0-9]$/),
    slug: z.string().regex(/^(?!-)[a-z0-9-]{1,20}(?<!-)$/),
    unicode: z.string().regex(/^\p{Lu}\p{Ll}*$/u),
    email: z.string().email(),
    url: z.string().url(),
    uuid: z.string().uuid(),
    datetime: z.string().datetime(),
    datetime_offset: z.string().datetime({ offset: true }),
    datetime_local: z.string().datetime({ local: true }),
    datetime_precise: z.string().datetime({ precision: 3 }),
    date: z.string().date(),
    time: z.string().time(),
    time_precise: z.string().time({ precision: 2 }),
    duration: z.string().duration(),
    base64: z.string().base64(),
    base64url: z.string().base64url(),
    cuid: z.string().cuid(),
    cuid2: z.string().cuid2(),
    ulid: z.string().ulid(),
    nanoid: z.string().nanoid(),
    emoji: z.string().emoji(),
    jwt: z.string().jwt(),
    trimmed: z.string().trim().min(1),
    lower: z.string().toLowerCase(),
    email_short: z.string().email().max(30),
    url_short: z.string().url().max(24),
    int: z.number().int(),
    positive: z.number().positive(),
    negative: z.number().negative(),
    nonnegative: z.number().nonnegative(),
    between: z.number().min(0).max(1),
    open: z.number().gt(0).lt(1),
    percent: z.number().int().min(0).max(100),
    multiple: z.number().multipleOf(5),
    cents: z.number().multipleOf(0.01).nonnegative(),
    even: z.number().int().multipleOf(2).min(2).max(20),
    safe: z.number().int().safe(),
    literal: z.literal("only"),
    literal_number: z.literal(42),
    literals: z.union([z.literal("a"), z.literal(1), z.literal(true), z.literal(null)]),
    enum: z.enum(["red", "green", "blue"]),
    native_enum: z.nativeEnum({ Up: "UP", Down: "DOWN" }),
    numeric_enum: z.nativeEnum({ Low: 1, High: 9 }),
    array: z.array(z.string()),
    array_bounds: z.array(z.number().int()).min(1).max(3),
    array_exact: z.array(z.boolean()).length(2),
    array_nonempty: z.array(z.string().max(3)).nonempty(),
    matrix: z.array(z.array(z.number()).length(2)).length(2),
    tuple: z.tuple([z.string(), z.number()]),
    tuple_rest: z.tuple([z.string()]).rest(z.number()),
    tuple_empty: z.tuple([]),
    object: z.object({ a: z.string(), b: z.number() }),
    strict: z.object({ a: z.string(), b: z.number().optional() }).strict(),
    loose: z.object({ a: z.string() }).passthrough(),
    catchall: z.object({ a: z.string() }).catchall(z.number()),
    optional: z.object({ a: z.string().optional(), b: z.number().optional() }),
    nullable: z.object({ a: z.string().nullable() }),
    nullish: z.object({ a: z.string().nullish(), b: z.number().nullish() }),
    defaults: z.object({ unit: z.enum(["C", "F"]).default("C"), days: z.number().int().min(1).max(7).default(3) }),
    partial: address.partial(),
    pick: address.pick({ street: true, zip: true }),
    omit: address.omit({ zip: true }),
    extend: address.extend({ note: z.string().max(5).nullable() }),
    record: z.record(z.string(), z.number()),
    record_pattern: z.record(z.string().regex(/^x-[a-z]+$/), z.string()),
    record_of_objects: z.record(z.string().min(1), z.object({ qty: z.number().int().positive() })),
    union: z.union([z.string(), z.number(), z.boolean()]),
    union_of_objects: z.union([z.object({ a: z.string() }), z.object({ b: z.number(), c: z.boolean().optional() })]),
    overlapping: z.union([z.string().email(), z.string().uuid()]),
    discriminated: z.discriminatedUnion("kind", [cat, dog]),
    nested_unions: z.object({ pets: z.array(z.discriminatedUnion("kind", [cat, dog])).max(2), owner: z.union([z.string(), z.object({ name: z.string() })]) }),
    intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
    intersection_of_unions: z.object({ id: z.string() }).and(z.union([z.object({ a: z.string() }), z.object({ b: z.number() })])),
    recursive: node,
    json,
    expression,
    brand: z.string().uuid().brand("Id"),
    readonly: z.object({ a: z.array(z.string()).readonly() }).readonly(),
    catch: z.object({ a: z.number().catch(0) }),
    described: z.object({ city: z.string().describe("Where."), unit: z.enum(["C", "F"]).describe("What.").optional() }).describe("Both."),
    refined: z.object({ a: z.string().max(3).refine(() => true) }),
    transformed: z.object({ a: z.string().transform((text) => text.length) }),
    preprocessed: z.preprocess((value) => value, z.number().int()),
    coerced: z.object({ at: z.coerce.number(), yes: z.coerce.boolean(), text: z.coerce.string() }),
    order: z.object({
      id: z.string().uuid(), placed: z.string().datetime(), customer: z.object({ name: z.string().min(1).max(20), email: z.string().email(), address: address.optional() }),
      lines: z.array(z.object({ sku: z.string().regex(/^[A-Z]{3}\d{3}$/), qty: z.number().int().positive().max(99), price: z.number().nonnegative().multipleOf(0.01) })).min(1).max(2),
      status: z.enum(["new", "paid", "sent"]), tags: z.array(z.string().max(5)).max(2).default([]), note: z.string().max(8).nullish(),
    }),
    steps: z.object({ steps: z.array(z.object({ explanation: z.string(), output: z.string() })), final_answer: z.string() }),
    calendar: z.object({ name: z.string(), date: z.string().date(), participants: z.array(z.string()), at: z.tuple([z.number().min(-90).max(90), z.number().min(-180).max(180)]).nullable() }),
    ui: z.object({ type: z.enum(["div", "button"]), label: z.string(), children: z.lazy(() => z.array(node)), attributes: z.array(z.object({ name: z.string(), value: z.string() })) }),
    search: z.object({ query: z.string().min(1), filters: z.object({ after: z.string().date().optional(), lang: z.string().length(2).optional() }).optional(), limit: z.number().int().min(1).max(50).default(10), sort: z.union([z.literal("date"), z.literal("relevance")]).optional() }),
    config: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())])),
    response: z.discriminatedUnion("ok", [z.object({ ok: z.literal(true), data: z.unknown() }), z.object({ ok: z.literal(false), error: z.object({ code: z.number().int(), message: z.string() }) })]),
    ...(four ? {} : {
      ip: z.string().ip(),
      ipv4: z.string().ip({ version: "v4" }),
      cidr: z.string().cidr(),
      set: z.set(z.number().int()),
      function_of_dates: z.object({ at: z.string().datetime({ offset: true, precision: 0 }) }),
    }),
  };
}

function ofFour(z) {
  const tree = z.object({ name: z.string(), get children() { return z.array(tree).max(2); } });
  const person = z.object({ name: z.string(), get friend() { return person.nullable(); } });
  return {
    top_email: z.email(),
    email_html5: z.email({ pattern: z.regexes.html5Email }),
    email_rfc5322: z.email({ pattern: z.regexes.rfc5322Email }),
    email_unicode: z.email({ pattern: z.regexes.unicodeEmail }),
    top_url: z.url(),
    http_url: z.httpUrl(),
    url_hostname: z.url({ hostname: /^example\.com$/ }),
    url_protocol: z.url({ protocol: /^https?$/ }),
    uuidv1: z.uuid({ version: "v1" }),
    uuidv4: z.uuidv4(),
    uuidv6: z.uuidv6(),
    uuidv7: z.uuidv7(),
    guid: z.guid(),
    hostname: z.hostname(),
    e164: z.e164(),
    ipv4: z.ipv4(),
    ipv6: z.ipv6(),
    mac: z.mac(),
    cidrv4: z.cidrv4(),
    cidrv6: z.cidrv6(),
    hex: z.hex(),
    hash: z.hash("md5"),
    hash_base64: z.hash("sha256", { enc: "base64" }),
    ksuid: z.ksuid(),
    xid: z.xid(),
    iso_date: z.iso.date(),
    iso_time: z.iso.time(),
    iso_datetime: z.iso.datetime(),
    iso_datetime_offset: z.iso.datetime({ offset: true }),
    iso_datetime_minutes: z.iso.datetime({ precision: -1, offset: true }),
    iso_duration: z.iso.duration(),
    top_int: z.int(),
    int32: z.int32(),
    uint32: z.uint32(),
    float32: z.float32(),
    float64: z.float64(),
    template: z.templateLiteral(["v", z.number().int(), ".", z.enum(["a", "b"])]),
    template_units: z.templateLiteral([z.number(), z.enum(["px", "em", "%"])]),
    stringbool: z.stringbool(),
    lowercase: z.string().lowercase(),
    uppercase: z.string().uppercase(),
    record_enum: z.record(z.enum(["a", "b"]), z.number()),
    record_numbers: z.record(z.number(), z.string()),
    partial_record: z.partialRecord(z.enum(["a", "b"]), z.number()),
    loose_record: z.looseRecord(z.string().regex(/^x-/), z.string()),
    record_uuid: z.record(z.uuid(), z.boolean()),
    record_email: z.record(z.email(), z.number().int()),
    getter: tree,
    getter_nullable: person,
    literal_list: z.literal(["a", 1, null]),
    strict_object: z.strictObject({ a: z.string(), b: z.array(z.int()).optional() }),
    loose_object: z.looseObject({ a: z.string() }),
    json_value: z.json(),
    xor: z.xor([z.object({ a: z.string() }), z.object({ b: z.number() })]),
    prefault: z.object({ a: z.string().prefault("x") }),
    pipe: z.object({ a: z.string().pipe(z.string().max(3)) }),
    codec: z.codec(z.iso.datetime(), z.date(), { decode: (text) => new Date(text), encode: (date) => date.toISOString() }),
    tuple_optional: z.tuple([z.string(), z.number().optional()]),
    meta: z.object({ a: z.string().meta({ title: "A", examples: ["x"] }) }).meta({ id: "Meta" }),
    booking: z.strictObject({
      id: z.uuidv7(), from: z.iso.date(), until: z.iso.date(), guests: z.int32().min(1).max(8), phone: z.e164().optional(), site: z.url().optional(),
      contact: z.union([z.email(), z.e164()]), rooms: z.array(z.object({ kind: z.enum(["single", "double"]), price: z.number().positive() })).min(1).max(2), host: z.ipv4().nullable(),
    }),
  };
}

const TYPES = { "zod 4": { ...both(z4, true), ...ofFour(z4) }, "zod 3": both(z3, false) };
const WRITE = { "zod 4": (type) => z4.toJSONSchema(type, { io: "input" }), "zod 3": (type) => zodToJsonSchema(type) };

if (process.argv[2] === "schemas") {
  for (const [version, types] of Object.entries(TYPES))
    for (const [name, type] of Object.entries(types)) console.log(JSON.stringify({ version, name, schema: WRITE[version](type) }));
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    const { version, name, text } = JSON.parse(line);
    const read = TYPES[version][name].safeParse(JSON.parse(text));
    const issue = read.error?.issues[0];
    console.log(JSON.stringify(issue ? { code: issue.code, format: issue.format ?? issue.validation, message: issue.message } : null));
  }
}
