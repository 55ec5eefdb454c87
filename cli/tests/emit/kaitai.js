// Compiles a Kaitai Struct description and reads one type from bytes in hexadecimal.
//
//   node kaitai.js FOLDER_OF_NODE_MODULES FILE.ksy TYPE BYTES
'use strict';
const { createRequire } = require('module');
const { readFileSync } = require('fs');
const Module = require('module');

const [folder, file, type, bytes] = process.argv.slice(2);
const load = createRequire(folder + '/node_modules/');
const { KaitaiStream } = load('kaitai-struct');
const compiled = load('kaitai-struct-compiler');
const compiler = typeof compiled === 'function' ? new compiled() : compiled;
const description = load('js-yaml').load(readFileSync(file, 'utf8'));

const camel = (id) => id.replace(/(^|_)([a-z0-9])/g, (_, __, letter) => letter.toUpperCase());
compiler
  .compile('javascript', description, null, false)
  .then((files) => {
    const [name, source] = Object.entries(files)[0];
    const made = new Module(name);
    made.paths = [folder + '/node_modules'];
    made._compile(source, folder + '/' + name);
    const all = made.exports[camel(description.meta.id)] || made.exports;
    if (!type) return console.log(Object.keys(description.types ?? {}).length);
    const read = new all[camel(type)](new KaitaiStream(Buffer.from(bytes, 'hex')));
    const field = (id) => id.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
    const show = (prefix, name, object) => {
      const of = description.types[name];
      const instances = Object.entries(of.instances || {}).map(([id, keys]) => ({ id, ...keys }));
      for (const { id, type: inner } of (of.seq || []).concat(instances)) {
        const value = object[field(id)];
        if (description.types[inner] && !Array.isArray(value)) show(prefix + id + '.', inner, value);
        else if (value instanceof Uint8Array) console.log(prefix + id, Buffer.from(value).toString('hex'));
        else console.log(prefix + id, String(value));
      }
    };
    show('', type, read);
  })
  .catch((error) => {
    console.error(String((error && error.message) || error));
    process.exit(1);
  });
