
        import matplotlib.pyplot as plt
        plt.plot([1, 2, 3, 4, 5], ["A", "B", "C", "D", "E"])
        plt.show()
