// Keeps a million objects and renews them all the time. Prints "ready" when all are there.
public class Grows {
    public static void main(String[] words) throws Exception {
        Object[] kept = new Object[1 << 20];
        java.util.Random chance = new java.util.Random(1);
        for (int n = 0; n < kept.length; n++) kept[n] = new int[chance.nextInt(24)];
        System.out.println("ready");
        for (;;) {
            for (int n = 0; n < 20000; n++) kept[chance.nextInt(kept.length)] = new int[chance.nextInt(24)];
            Thread.sleep(5);
        }
    }
}
