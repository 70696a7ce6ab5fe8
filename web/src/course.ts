// course.ts - the course page's entry: registers <ml-course>, which stands in course/index.html.

import './course/course_app.js';
