import matplotlib.pyplot as plt
import numpy as np
x = np.linspace(0, 10, 100)
fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5))
fig.suptitle("Multiple Charts Example")
left.plot(x, np.sin(x))
left.set_title("Sine Wave")
left.grid(True)
right.scatter(np.random.rand(5), np.random.rand(5))
right.set_title("Scatter Plot")
right.set_xlabel("X")
right.set_ylabel("Y")
right.grid(True)
plt.show()
