// A cache of the latest answers, because Back and Forward in the browser request the same answers again.

/** The most answers in a cache. The one that was not used for the longest time is removed. */
const MOST = 12;

export class Kept<T> {
  private readonly map = new Map<string, Promise<T>>();
  /** Replaces an answer that turned out to be too old. */
  again(name: string, make: () => Promise<T>): Promise<T> {
    this.map.delete(name);
    return this.get(name, make);
  }
  get(name: string, make: () => Promise<T>): Promise<T> {
    let found = this.map.get(name);
    if (found) this.map.delete(name);
    else {
      found = make();
      found.catch(() => this.map.delete(name));
    }
    this.map.set(name, found);
    for (const oldest of this.map.keys()) {
      if (this.map.size <= MOST) break;
      this.map.delete(oldest);
    }
    return found;
  }
}
