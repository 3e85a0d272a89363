(* Four threads with exceptions, while a timer signals switches between them: 4 * 250 * 10 blocks. *)
external blocks : int -> int = "zoo_caml_blocks"

let sum = Atomic.make 0

let body gate =
  Mutex.lock gate;
  Mutex.unlock gate;
  for _ = 1 to 250 do
    try
      ignore (Atomic.fetch_and_add sum (blocks 10));
      raise Not_found
    with Not_found -> ()
  done

let () =
  let gate = Mutex.create () in
  Mutex.lock gate;
  let threads = List.init 4 (fun _ -> Thread.create body gate) in
  print_endline "ready";
  ignore (input_line stdin);
  Mutex.unlock gate;
  List.iter Thread.join threads;
  Printf.printf "%d\n" (Atomic.get sum)
