// Bundles main.ts into one script, and writes the licences of what is in it beside it.
//
//     node build.mjs [FOLDER]
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "..", "static");

const built = await build({
  absWorkingDir: here,
  entryPoints: ["main.ts"],
  outfile: join(folder, "editor.js"),
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none", // all of them are in editor.licenses.txt, with those that no comment names
  banner: { js: '// Made by `make bundle` from web/editor; the licences of what is in it: editor.licenses.txt' },
  metafile: true,
});

const packages = new Set();
const [made] = Object.values(built.metafile.outputs);
for (const [input, { bytesInOutput }] of Object.entries(made.inputs)) {
  const name = bytesInOutput > 0 && input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]; // what was shaken out is not in it
  if (name) packages.add(name);
}

const notices = [...packages].sort().map((name) => {
  const place = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(place, "package.json"), "utf8"));
  const file = readdirSync(place).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${name} ships no licence`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(place, file), "utf8").trim().replaceAll("\r\n", "\n")}\n`;
});
writeFileSync(join(folder, "editor.licenses.txt"), `What editor.js holds besides Notewright.\n\n${notices.join(`\n${"-".repeat(72)}\n\n`)}`);
