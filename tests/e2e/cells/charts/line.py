import datetime
import matplotlib.pyplot as plt
import numpy as np
days = [datetime.date(2023, 9, 1) + datetime.timedelta(seconds=i) for i in range(100)]
angles = np.linspace(0, 2 * np.pi, 100)
plt.plot(days, np.sin(angles), label="sin(x)")
plt.plot(days, np.cos(angles), label="cos(x)")
plt.xlabel("Time (s)")
plt.ylabel("Amplitude (Hz)")
plt.title("Plot of sin(x) and cos(x)")
plt.legend()
plt.show()
