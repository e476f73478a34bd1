import matplotlib.pyplot as plt
plt.figure(figsize=(9, 5))
plt.bar(["Author A", "Author B", "Author C", "Author D"], [100, 200, 300, 400], label="Books Sold", color="teal")
plt.xlabel("Authors")
plt.ylabel("Number of Books Sold")
plt.title("Book Sales by Authors")
plt.tight_layout()
plt.show()
