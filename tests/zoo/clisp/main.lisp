;; A collector that detects writes by page faults (libsigsegv), with a handler on its own stack. No exact count is
;; compared, only the identities of `Oracle::Identities` (tests/src/zoo.rs).
(write-line "ready")
(finish-output)
(read-line)
(let ((kept nil))
  (dotimes (turn 200) (push (make-array 5000 :initial-element turn) kept) (when (> (length kept) 20) (setf kept nil)))
  (gc)
  (format t "~d~%" (reduce #'+ (mapcar (lambda (one) (aref one 7)) kept))))
(handler-case (labels ((deep (n) (if (= n 0) 0 (+ 1 (deep (- n 1)))))) (format t "~d~%" (deep 1000)))
  (error () (write-line "too deep")))
