// Draws the same picture on a canvas or into an SVG file.

export type Point = [number, number];
export interface Pen {
  rect(x: number, y: number, width: number, height: number, colour: string, edge?: string): void;
  area(points: Point[], colour: string): void;
  line(points: Point[], colour: string, width: number, dash?: number[]): void;
  text(text: string, x: number, y: number, colour: string, align?: "left" | "right" | "center", font?: string): void;
}

export const FONT = '12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';

export class CanvasPen implements Pen {
  constructor(private readonly context: CanvasRenderingContext2D) {}

  rect(x: number, y: number, width: number, height: number, colour: string, edge?: string): void {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
    if (edge) {
      this.context.strokeStyle = edge;
      this.context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    }
  }

  private path(points: Point[]): void {
    this.context.beginPath();
    points.forEach(([x, y], index) => (index === 0 ? this.context.moveTo(x, y) : this.context.lineTo(x, y)));
  }

  area(points: Point[], colour: string): void {
    this.path(points);
    this.context.closePath();
    this.context.fillStyle = colour;
    this.context.fill();
  }

  line(points: Point[], colour: string, width: number, dash: number[] = []): void {
    this.path(points);
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.setLineDash(dash);
    this.context.stroke();
    this.context.setLineDash([]);
  }

  text(text: string, x: number, y: number, colour: string, align: "left" | "right" | "center" = "left", font = FONT): void {
    this.context.font = font;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillStyle = colour;
    this.context.fillText(text, x, y);
  }
}

const escaped = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
const short = (number: number): string => String(Math.round(number * 100) / 100);

export class SvgPen implements Pen {
  private readonly parts: string[] = [];

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly title: string,
  ) {}

  rect(x: number, y: number, width: number, height: number, colour: string, edge?: string): void {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${colour}"${edge ? ` stroke="${edge}"` : ""}/>`);
  }

  area(points: Point[], colour: string): void {
    this.parts.push(`<polygon points="${points.map(([x, y]) => `${short(x)},${short(y)}`).join(" ")}" fill="${colour}"/>`);
  }

  line(points: Point[], colour: string, width: number, dash: number[] = []): void {
    const dashes = dash.length > 0 ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<polyline points="${points.map(([x, y]) => `${short(x)},${short(y)}`).join(" ")}" fill="none" stroke="${colour}" stroke-width="${width}"${dashes}/>`);
  }

  text(text: string, x: number, y: number, colour: string, align: "left" | "right" | "center" = "left"): void {
    const anchor = { left: "start", right: "end", center: "middle" }[align];
    this.parts.push(
      `<text x="${short(x)}" y="${short(y)}" fill="${colour}" text-anchor="${anchor}" dominant-baseline="central" font-size="12" font-family="system-ui,sans-serif">${escaped(text)}</text>`,
    );
  }

  finish(paper: string): string {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img"><title>${escaped(this.title)}</title><rect width="100%" height="100%" fill="${paper}"/>${this.parts.join("")}</svg>\n`;
  }
}

/** Gives a canvas the resolution of the screen. */
export const sharpen = (canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null => {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context?.setTransform(scale, 0, 0, scale, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
};
