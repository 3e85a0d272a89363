// Eight threads call C through JNI, from interpreted and compiled code. They also catch null pointer exceptions, which
// the JVM implements by a signal: 8 * 125 * 10 blocks.
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

public class Zoo {
    static native long blocks(long count);

    static int length(String text) {
        try {
            return text.length();
        } catch (NullPointerException thrown) {
            return 0;
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        AtomicLong sum = new AtomicLong();
        CountDownLatch gate = new CountDownLatch(1);
        Thread[] threads = new Thread[8];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                try {
                    gate.await();
                } catch (InterruptedException thrown) {
                    return;
                }
                for (int turn = 0; turn < 125; turn++)
                    sum.addAndGet(blocks(10) + length(turn % 2 == 0 ? null : ""));
            });
            threads[i].start();
        }
        System.out.println("ready");
        System.in.read();
        gate.countDown();
        for (Thread thread : threads)
            thread.join();
        System.out.println(sum.get());
    }
}
