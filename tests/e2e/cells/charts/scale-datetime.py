
        import datetime
        import matplotlib.pyplot as plt
        days = [datetime.date(2023, 9, day) for day in range(1, 11)]
        plt.plot(days, [day.day for day in days])
        plt.show()
