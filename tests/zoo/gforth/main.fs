\ Forth with its own stacks; a fault is an exception there. 10,000 calls of malloc for 4321 bytes.
: work ( -- n ) 0 10000 0 do 4321 allocate throw free throw 1+ loop ;
: fault ( -- ) 0 @ drop ;
." ready" cr stdout flush-file throw
pad 80 stdin read-line throw 2drop
' fault catch 0<> negate .
work . cr
bye
