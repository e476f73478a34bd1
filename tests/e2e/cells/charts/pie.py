import matplotlib.pyplot as plt
plt.pie([90, 10], labels=["No", "No, in blue"], colors=["grey", "blue"], startangle=90, autopct="%1.1f%%")
plt.axis("equal")
plt.xlabel("x")
plt.ylabel("y")
plt.title("Will I wake up early tomorrow?")
plt.show()
