"""Audits written as their definitions read: loops over samples, counters, a classifier refitted after each deletion."""

from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
from sklearn.neighbors import KNeighborsClassifier


def coverage(omega, labels, classes):
    order = sorted(range(len(omega)), key=lambda l: -omega[l])
    seen = set()
    for kappa, l in enumerate(order, start=1):
        seen.add(labels[l])
        if set(classes) <= seen:
            return kappa
    return None


def consistency(top, landmark_labels, labels, k):
    """Precision, Majority, HitRate; a tie of the majority goes to the class that first reached the count."""
    precision, majority, hit = [], [], []
    for row, label in zip(top, labels, strict=True):
        found = [landmark_labels[l] for l in row[:k]]
        precision.append(found.count(label) / k)
        hit.append(label in found)
        counts, winner = Counter(), None
        for name in found:
            counts[name] += 1
            if winner is None or counts[name] > counts[winner]:
                winner = name
        majority.append(winner == label)
    return np.mean(precision), np.mean(majority), np.mean(hit)


def column_agreement(a, b, span):
    """``span`` is the range of a numeric column, ``None`` for a categorical one."""
    if pd.isna(a) or pd.isna(b):
        return float(pd.isna(a) and pd.isna(b))
    if span is None:
        return float(a == b)
    return 1 - min(abs(a - b) / span, 1)


def alignment(scores, rows, landmark_rows, spans, random_sets, k, *, normalise):
    """Mean over samples of the gap of each column; ``random_sets[t]`` lists the random sets of sample t."""
    gaps = {name: [] for name in spans}
    rows, landmark_rows = ({name: frame[name].tolist() for name in spans} for frame in (rows, landmark_rows))
    for t, row in enumerate(scores):
        top = sorted(range(len(row)), key=lambda l: -row[l])[:k]

        def psi(members, name, t=t, row=row):
            weights = [abs(row[l]) for l in members]
            if normalise:
                weights = [w / sum(weights) for w in weights]
            pairs = ((rows[name][t], landmark_rows[name][l]) for l in members)
            return sum(w * column_agreement(a, b, spans[name]) for w, (a, b) in zip(weights, pairs, strict=True))

        for name in spans:
            gaps[name].append(psi(top, name) - np.mean([psi(members, name) for members in random_sets[t]]))
    return {name: np.mean(values) for name, values in gaps.items()}


def shuffled_alignment(scores, rows, landmark_rows, spans, random_sets, k, orders, *, normalise):
    """The gap of each column for every order of the landmarks, all values of a landmark moved to another."""
    moved = (landmark_rows.iloc[order] for order in orders)
    gaps = [alignment(scores, rows, table, spans, random_sets, k, normalise=normalise) for table in moved]
    return {name: np.array([gap[name] for gap in gaps]) for name in spans}


def shuffled_counts(first, landmark_groups, groups, names, orders):
    """For every order of the landmarks: how many samples of each group have a first landmark of each group."""
    counts = np.zeros((len(orders), len(names), len(names)))
    for d, order in enumerate(orders):
        for l, group in zip(first, groups, strict=True):
            counts[d, names.index(group), names.index(landmark_groups[order[l]])] += 1
    return counts


def tau_b(a, b):
    signs = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in combinations(range(len(a)), 2)]
    top = sum(s * r for s, r in signs)
    return top / np.sqrt(sum(s * s for s, _ in signs) * sum(r * r for _, r in signs))


def confidence_drop(deleted, E_test, E_landmarks, labels, k):
    """Mean loss of confidence in the first decision when each sample's landmarks are deleted and the k-NN refitted."""
    E_test, E_landmarks, labels = (np.asarray(x) for x in (E_test, E_landmarks, labels))
    full = KNeighborsClassifier(k).fit(E_landmarks, labels)
    drops = []
    for t, x in enumerate(E_test):
        before = full.predict_proba(x[None])[0]
        decision = full.classes_[before.argmax()]
        kept = np.setdiff1d(np.arange(len(labels)), deleted[t])
        rest = KNeighborsClassifier(k).fit(E_landmarks[kept], labels[kept])
        after = dict(zip(rest.classes_, rest.predict_proba(x[None])[0], strict=True))
        drops.append(before.max() - after.get(decision, 0.0))
    return np.mean(drops)


def vote_shares(x, E_landmarks, labels, kept, k, vote):
    """The share of each class among the k nearest kept landmarks, counted one by one."""
    if vote == "uniform":
        closeness = {l: -np.linalg.norm(x - E_landmarks[l]) for l in kept}
    else:
        closeness = {l: x @ E_landmarks[l] / np.linalg.norm(x) / np.linalg.norm(E_landmarks[l]) for l in kept}
    nearest = sorted(kept, key=lambda l: -closeness[l])[:k]
    votes = Counter()
    for l in nearest:
        votes[labels[l]] += 1.0 if vote == "uniform" else np.exp(closeness[l] / 0.07)
    total = sum(votes.values())
    return {label: votes[label] / total for label in votes}


def deletion_reading(ranking, chances, E_test, E_landmarks, labels, k, delete, vote, own_only):
    """Mean drop of a ranking, of random landmarks, and of random ones of the same classes; ``chances[d][t]`` orders."""
    drops, random, matched, everyone = [], [], [], range(len(labels))
    for t, x in enumerate(E_test):
        before = vote_shares(x, E_landmarks, labels, everyone, k, vote)
        decision = max(sorted(before), key=before.get)

        def drop(gone, x=x, before=before, decision=decision):
            kept = [l for l in everyone if l not in gone]
            return before[decision] - vote_shares(x, E_landmarks, labels, kept, k, vote).get(decision, 0.0)

        gone = [l for l in ranking[t] if not own_only or labels[l] == decision][:delete]
        drops.append(drop(gone))
        wanted = Counter(labels[l] for l in gone)
        for orders in chances:
            random.append(drop(list(orders[t])[:delete]))
            alike = [l for label, n in wanted.items() for l in [o for o in orders[t] if labels[o] == label][:n]]
            matched.append(drop(alike))
    return np.mean(drops), np.mean(random), np.mean(matched)


def decision_margin(kernel, A, views, w, b, gamma, x, points):
    """Logits of a probe on f(x) = sum of A_j k(x, z_j) + gamma; each landmark's part in the margin, by loops."""
    p, m = views
    h = len(gamma)
    k = [kernel(x, z) for z in points]
    f = [gamma[d] + sum(A[j][d] * k[j] for j in range(p * m)) for d in range(h)]
    logits = [b[c] + sum(w[c][d] * f[d] for d in range(h)) for c in range(len(b))]
    first, second = sorted(range(len(b)), key=lambda c: -logits[c])[:2]
    parts = [
        sum(k[u * m + l] * sum(A[u * m + l][d] * (w[first][d] - w[second][d]) for d in range(h)) for u in range(p))
        for l in range(m)
    ]
    return first, second, logits[first] - logits[second], parts
