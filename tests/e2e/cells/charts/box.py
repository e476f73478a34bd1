import matplotlib.pyplot as plt
scores = {"Class A": [85, 90, 78, 92, 88], "Class B": [95, 89, 76, 91, 84, 87], "Class C": [75, 82, 88, 79, 86]}
fig, ax = plt.subplots(figsize=(8, 5))
ax.boxplot(scores.values(), labels=scores.keys(), patch_artist=True)
ax.set_title("Exam Scores Distribution")
ax.set_xlabel("Class")
ax.set_ylabel("Score")
ax.legend()
plt.tight_layout()
plt.show()
