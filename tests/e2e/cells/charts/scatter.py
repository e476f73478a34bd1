import matplotlib.pyplot as plt
import numpy as np
plt.scatter(np.random.rand(5), np.random.rand(5), label="Dataset 1")
plt.scatter(np.random.rand(10), np.random.rand(10), label="Dataset 2")
plt.xlabel("A")
plt.ylabel("B")
plt.show()
