// Calls the addon from a function that is hot enough to be compiled. `takeSome` requests 12345 bytes each time.
'use strict';
const addon = require(process.argv[2]);

function takeSome(count) { // line: takeSome
  for (let i = 0; i < count; i++) addon.take(12345);
}

const end = Date.now() + 3000;
while (Date.now() < end) takeSome(20);
