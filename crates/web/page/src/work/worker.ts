// The worker of a page that a server or a report has.
import { serve } from "./serve";
import { open } from "./source";

serve(open);
