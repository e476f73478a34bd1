'use strict';
// What a copied process must not share with its original: random numbers.
//
// V8's Math.random() cannot be seeded, so it is replaced, unless the user has done so already. OpenSSL is made to fetch entropy
// (reseed.node), and what Node keeps ready of its numbers is used up.

const path = require('path');

const BATCH = { uuids: 128, integers: 1024 }; // how many Node keeps ready
let current = Math.random;

// sfc32, by four words of the seed.
function generator(words) {
  let [a, b, c, d] = words;
  const next = () => {
    const t = (a + b + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + t | 0;
    return t >>> 0;
  };
  for (let i = 0; i < 16; i++) next();
  return () => ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
}

function reseed(seed) {
  if (Math.random === current) {
    const draw = generator(seed.match(/.{8}/g).map((word) => parseInt(word, 16)));
    current = { random() { return draw(); } }.random;
    Object.defineProperty(Math, 'random', { value: current, writable: true, configurable: true, enumerable: false });
  }
  const loaded = { exports: {} };
  process.dlopen(loaded, path.join(__dirname, 'reseed.node'));
  const { randomUUID, randomInt } = require('crypto');
  for (let i = 0; i < BATCH.uuids; i++) randomUUID();
  for (let i = 0; i < BATCH.integers; i++) randomInt(2);
}

module.exports = { reseed };
