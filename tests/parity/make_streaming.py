"""Prequential accuracy of River's models on the weather stream: test, then train, row by row.

    pip install river; python make_streaming.py WEATHER.csv > golden/streaming.json
"""

import csv
import json
import sys

import river
from river import linear_model, naive_bayes, preprocessing, tree


def accuracy(model, names, rows):
    right = 0
    for row in rows:
        features = {name: float(value) for name, value in zip(names, row)}
        label = int(row[-1])
        right += model.predict_one(features) == label
        model.learn_one(features, label)
    return right / len(rows)


def main():
    with open(sys.argv[1], newline="") as file:
        names, *rows = csv.reader(file)
    models = {
        "StandardScaler | LogisticRegression": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        "HoeffdingTreeClassifier": tree.HoeffdingTreeClassifier(),
        "GaussianNB": naive_bayes.GaussianNB(),
    }
    figures = {name: round(accuracy(model, names[:-1], rows), 4) for name, model in models.items()}
    json.dump({"river": river.__version__, "rows": len(rows), "accuracy": figures}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
