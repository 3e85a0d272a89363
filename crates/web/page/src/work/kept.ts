// A cache of answers, because going back and forth requests the same again.

const MOST = 12;

export class Kept<T> {
  private readonly map = new Map<string, Promise<T>>();
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
