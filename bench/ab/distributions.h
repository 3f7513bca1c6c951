// The two distributions that statistics.h needs: the normal one and Student's t. Pure.
#pragma once

namespace pacecar::ab {

// P(Z <= z) for a standard normal Z, and its inverse for p in (0, 1).
double normal_cdf(double z);
double normal_quantile(double p);

// P(T <= t) for Student's t with `degrees` > 0 degrees of freedom, and its inverse.
double student_cdf(double t, double degrees);
double student_quantile(double p, double degrees);

}  // namespace pacecar::ab
