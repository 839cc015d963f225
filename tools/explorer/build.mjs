// Bundle the map component, and write the licences of every package in it beside the bundle.
import { build } from "esbuild";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const out = "../../src/krepes/explore/static/vendor";
const result = await build({
  entryPoints: ["map.js"],
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  legalComments: "none",
  metafile: true,
  outfile: `${out}/deck.js`,
});
const packages = new Set();
for (const path of Object.keys(result.metafile.inputs)) {
  const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/);
  if (found) packages.add(found[1]);
}
const parts = [...packages].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const about = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file ? readFileSync(`${folder}/${file}`, "utf8").trim() : `Licence: ${about.license}`;
  return `${name} ${about.version} (${about.license})\n\n${text}`;
});
writeFileSync(`${out}/LICENSES.txt`, `${parts.join("\n\n" + "-".repeat(80) + "\n\n")}\n`);
console.log(`${packages.size} packages in ${out}/deck.js`);
