// Four threads that make garbage and check their work, in a JVM. "ping N" is answered by "pong N ROUNDS"; the end of the input ends it.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.concurrent.atomic.AtomicLong;

public class Work {
    static volatile boolean stop;
    static final AtomicLong rounds = new AtomicLong(), wrong = new AtomicLong();

    static long round() {
        HashMap<String, int[]> table = new HashMap<>();
        for (int n = 0; n < 500; n++) table.put("k" + n, new int[] {n, n * n});
        long sum = 0;
        for (int[] pair : table.values()) sum += pair[0] + 3L * pair[1];
        return sum;
    }

    public static void main(String[] words) throws Exception {
        long right = round();
        Thread[] threads = new Thread[4];
        for (int n = 0; n < threads.length; n++) {
            threads[n] = new Thread(() -> {
                while (!stop) {
                    if (round() != right) wrong.incrementAndGet();
                    rounds.incrementAndGet();
                }
            });
            threads[n].start();
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ");
            if (parts[0].equals("ping")) System.out.println("pong " + parts[1] + " " + rounds.get());
        }
        stop = true;
        for (Thread thread : threads) thread.join();
        System.exit(wrong.get() == 0 && rounds.get() > 0 ? 0 : 8);
    }
}
