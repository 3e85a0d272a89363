-- 100 green threads on two threads of the system, in code without frame pointers or C stacks: 100 * 10 * 10 blocks.
module Main where

import Control.Concurrent
import Control.Monad
import Foreign.C.Types
import System.IO

foreign import ccall safe "zoo_blocks" blocks :: CLong -> IO CLong

main :: IO ()
main = do
  gate <- newEmptyMVar
  results <- forM [1 .. 100 :: Int] $ \_ -> do
    result <- newEmptyMVar
    _ <- forkIO $ readMVar gate >> (sum <$> replicateM 10 (blocks 10 <* yield)) >>= putMVar result
    return result
  putStrLn "ready"
  hFlush stdout
  _ <- getLine
  putMVar gate ()
  total <- sum <$> mapM takeMVar results
  print (toInteger total)
