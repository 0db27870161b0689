"""Knowledge distillation (Hinton et al. 2015): divergence of a student's words from a teacher's at a temperature.

(16384, 8192) twice: 1.07 GB in, one number per token out.
"""

import torch
import torch.nn as nn

n_tokens = 16384
n_words = 8192


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        student = torch.log_softmax(student / self.temperature, dim=-1)
        teacher = torch.log_softmax(teacher / self.temperature, dim=-1)
        divergence = nn.functional.kl_div(student, teacher, reduction="none", log_target=True)
        return divergence.sum(-1) * self.temperature**2


def get_inputs():
    return [torch.randn(n_tokens, n_words) * 3.0, torch.randn(n_tokens, n_words) * 3.0]


def get_init_inputs():
    return [2.0]
