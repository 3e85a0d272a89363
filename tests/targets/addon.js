// Calls the addon for 3 seconds from `takeSome`, which is hot enough to be compiled. Each call of the addon allocates 12345 bytes.
'use strict';
const addon = require(process.argv[2]);

function takeSome(count) { // line: takeSome
  for (let i = 0; i < count; i++) addon.take(12345);
}

const end = Date.now() + 3000;
while (Date.now() < end) takeSome(20);
