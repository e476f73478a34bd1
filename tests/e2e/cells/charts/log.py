import matplotlib.pyplot as plt
import numpy as np
x = np.linspace(0, 100, 100)
plt.plot(x, np.exp(x), label="y = e^x")
plt.yscale("log")
plt.title("Chart with Log Scale on Y-axis")
plt.xlabel("X-axis")
plt.ylabel("Y-axis (log scale)")
plt.legend()
plt.grid(True)
plt.show()
